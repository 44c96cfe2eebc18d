# The page of `usu app` on the embedded network. See docs/how-to/page.md.
#   docker build -t usu-app .
#   docker run --rm -p 127.0.0.1:7860:7860 usu-app
# It prints its address, key included. For another name: docker run ... usu-app --allow-host demo.example.org
FROM python:3.11-slim

RUN useradd --create-home --uid 1000 visitor
WORKDIR /home/visitor/usu
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src ./src
RUN pip install --no-cache-dir -c constraints.txt '.[app]'

USER visitor
# many threads wait in turn for one model: they share their memory
ENV USU_CACHE=/home/visitor/.cache/usu MALLOC_ARENA_MAX=2
# the network's fast form is made once, when the image is built
RUN python -c "from usu.app import glass_of; from usu.models import load; glass_of(load())"
EXPOSE 7860
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
  CMD python -c "import urllib.request; urllib.request.urlopen('http://127.0.0.1:7860/health', timeout=4)"
ENTRYPOINT ["usu", "app", "--no-browser", "--host", "0.0.0.0", "--allow-host", "localhost"]
